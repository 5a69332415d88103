"""Who may call what, from where, and how they find out what there is."""
