"""Looks into clients' batches: are they what their headers say?"""
