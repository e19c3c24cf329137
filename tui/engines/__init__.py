"""The inference engines, a package each. Nothing outside of these packages names an engine; `registry` hands out what they know."""
