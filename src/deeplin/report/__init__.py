"""Reports: a diagnosis, a finished training and a certificate as text, and a page."""
