"""Certificate authorities (CAs), the certificates that they issue, and truststores."""
