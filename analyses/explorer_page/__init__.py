"""The explorer's page: its parts as plain HTML, CSS and JavaScript, and what joins them."""
