"""The names of the origins' own packages, over Serai's objects. Nothing else imports this."""
