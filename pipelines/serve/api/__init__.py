"""An HTTP server that answers with exported models, for programs and load balancers."""
