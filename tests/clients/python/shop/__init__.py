"""An application of Django."""
