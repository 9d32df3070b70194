"""An app whose one agent books, waits for a signature, ships, fails and takes all of it back."""
