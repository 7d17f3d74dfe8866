"""What should change, and what to say about it: facts in, decisions out. Pure."""
