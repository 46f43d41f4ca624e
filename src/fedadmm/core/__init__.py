"""What a round is: no datasets, no files, no network."""
