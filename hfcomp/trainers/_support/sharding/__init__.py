"""FSDP2 for models that are too large for one device."""
