"""Public corpora: downloaded, verified, cleaned and split into training, validation and test data."""
