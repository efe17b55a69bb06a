"""What logs use of the disk: file IO behind one object, names and small files of Kafka's layout, open files, trash."""
