"""The Twisted services that make up the daemon."""
