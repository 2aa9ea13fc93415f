"""What reads give, and answers that say more than their JSON."""
