"""The model and its passes, plain and captured."""
