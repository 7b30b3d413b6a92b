"""What is derived from records: figures, findings, comparisons, and the pages that show them."""
