"""Small training programs, one for each trainer; each can be killed at any time and started again.

    torchrun --nproc-per-node 2 --rdzv-id mine -m headrace.client.examples.ddp 127.0.0.1:7750 RUN

torchrun on one machine takes a new name at each start, whatever --rdzv-id says: to start a killed one again, wait
60 s or say --takeover, or name it yourself: --job mine --attempt 0, one higher at each start.

Every one takes a server, a run, --steps, --folder (of its checkpoints) and --trace (a file that gets one line a step,
with the digests of the rows it trained on), and goes on from the newest checkpoint in its folder.
"""
