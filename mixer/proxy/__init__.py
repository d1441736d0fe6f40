"""The proxy: a small GPT in torch that methods train to read a signal from (extra `mixer`)."""
