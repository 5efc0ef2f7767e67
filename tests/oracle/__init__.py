"""The oracle: what the real model code has, multiplies and keeps, counted and written to tests/data/oracle/.

`make oracle` runs it in a venv of its own (torch and transformers as in requirements.txt). Nothing of gpumon is
imported here, and nothing of this package by gpumon: its tests read the files that this writes.

How it counts. A model is built from its config by transformers on torch's meta device, which has shapes and no values:
at full size, of a trillion parameters too. parameters.csv counts the parameters by what a token does with them.
flops.csv runs the model over a prompt (prefill) and over one more token behind the cache that the prompt left (decode),
with PyTorch's FLOP counter, at a prompt of 128 tokens and at one beyond the windows; caches.csv counts the elements
that the cache then holds. Attention is the eager code, so that its products are seen; experts are the form that
multiplies the chosen experts only. A model whose code needs values (it picks out each expert's tokens) runs scaled down
on the CPU: see variants.py. Only the language part is counted, never a tower of images or sound. An addition and a
multiplication are two FLOPs.

What to know before comparing a formula with flops.csv:

- Prefill attention is the full square of n x n pairs, masked: a causal kernel computes n (n + 1) / 2 of them, a window
  or a selection of sparse attention fewer. Decode attention is exact, but for sparse attention, whose eager code
  computes every pair too and masks what its indexer didn't select.
- The output head runs at every position of the prompt; a server runs it at the last one only. It has a column.
- MLA keeps latents and projects all of them to keys and values anew at every step (`linear_cached`). Engines absorb
  that projection into the query and the output: heads x (latent + rotary) and heads x latent per pair instead.
- DeepSeek-V4 has one vector that is both key and value: its cache holds it twice. A sliding layer's cache holds one
  token less than its window, as the next step brings its own.
- Llama 4's eager experts multiply every expert; the model needs `experts_per_token` of them.
- A prefill of linear attention or a state space model runs in chunks of 64 to 256 tokens, padded to a whole one:
  `state` holds the products in and between chunks. At decode the state is updated by elementwise operations, which
  PyTorch's counter doesn't see: `state_elementwise` has their number, with those of gates and norms beside them.
  Other norms, activations, rotary embeddings and softmax are counted nowhere.
- A router that assigns identity experts (LongCat) multiplies more or fewer than `experts_per_token`, as random routing
  falls: that is the mean of even routing.
- Decoders beside an encoder run with what it would make: Whisper of 30 s of sound, those of text pairs of 1,024 tokens.
  `linear_cached` of their prefill makes keys and values of it, once per request; `cross` are the products with them,
  and `cross_keys` and `cross_values` what the cache holds of them, in each row.
"""
