"""Names of the peers, as the command line takes them and in the order of reports; no import of torch. The last one
needs the most memory."""

OURS = "tilewise"
PEER_NAMES = (
    "sdpa-flash",
    "sdpa-cudnn",
    "sdpa-efficient",
    "flash_attn",
    "fa3",
    "fa4",
    "flashinfer",
    "sdpa-math",
)
