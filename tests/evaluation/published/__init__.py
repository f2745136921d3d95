"""Published numbers beside measured ones."""
