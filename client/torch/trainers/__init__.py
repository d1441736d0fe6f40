"""Adapters to trainers, one file each; a file imports its trainer, so import only the one that is installed.

    huggingface   `transformers.Trainer`, and Accelerate under it
    lightning     Lightning 2
    torchtitan    torchtitan 0.3
    megatron      Megatron-LM with `--dataloader-type external`
    nanotron      nanotron

torchdata's StatefulDataLoader takes `StreamDataset` as it is. All adapters keep to three rules: the trainer gets each
rank's own rows and shards nothing again; labels are shifted already; the position in the checkpoint is that of the
last batch trained on, however far the trainer has fetched ahead.
"""
