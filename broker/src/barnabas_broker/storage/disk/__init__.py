"""The disk as logs use it: file IO behind one object, names and small files of Kafka's layout, open files, trash."""
