"""The interchip network: links, routers, torus."""
