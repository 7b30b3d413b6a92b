"""The links of the chain, one file for each area. Each has `LINKS`; chain.links() finds them by being here."""
