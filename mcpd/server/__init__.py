"""What a server offers and how a request is answered. It knows no transport and no session store."""
