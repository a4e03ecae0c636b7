"""Everything `midspan train` needs: corpus, vocabulary, packed token files and the training loop."""
