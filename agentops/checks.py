"""System checks of the environment: an unknown name or an unsafe value is said at start."""
