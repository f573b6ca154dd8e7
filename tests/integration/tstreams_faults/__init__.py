"""What a server does when its disk is full, fails, lies, or has to be emptied."""
