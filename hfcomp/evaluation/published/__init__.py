"""What is published for known models, with source and protocol, and the measured numbers beside it."""
