"""What a status, its conditions and Events say."""
