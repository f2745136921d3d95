"""What the trainers share and no user has to know: gathering, logging, checks, callbacks, text features."""
