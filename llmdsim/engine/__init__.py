"""When it is said: which sequence reveals which tokens at which instant."""
