"""What several test folders share: real processes of Kafka and of ours, ports, bounded waiting."""
