"""What one run did: figures and known failures, from its record."""
