"""Parts that know no model."""
