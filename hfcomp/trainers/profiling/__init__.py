"""Where the time of a training step goes: phases, FLOPs and a trace of some steps, for the field `profile`."""
