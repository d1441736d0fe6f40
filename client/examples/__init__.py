"""Small training programs, one for each trainer; each can be killed at any time and started again.

    torchrun --nproc-per-node 2 --rdzv-id mine -m headrace.client.examples.ddp 127.0.0.1:7750 RUN

Every one takes a server, a run, --steps, --folder (of its checkpoints) and --trace (a file that gets one line a step,
with the digests of the rows it trained on), and goes on from the newest checkpoint in its folder.
"""
