"""What is read out of records: figures now, plots and pages on top of them."""
