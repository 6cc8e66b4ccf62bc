"""HTML reports: self-contained files that need no server and no network."""
