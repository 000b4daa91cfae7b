"""What people read: a diagnosis, a finished training and a certificate in words, and a page."""
