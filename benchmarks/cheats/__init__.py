"""What other clients report on streams whose truth is known."""
