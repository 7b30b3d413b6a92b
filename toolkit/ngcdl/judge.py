"""An image judged for a host: the facts of both are gathered, and the newest tag that does run is named."""
