"""The links of the chain, one file per area. Each has `LINKS`, which chain.links() finds automatically."""
