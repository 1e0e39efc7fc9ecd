"""The canonical decoder, assembled of replacement modules as a recipe assembles it."""

import copy

import torch
from canonical import (
    delta_net,
    expert_mixture,
    group_rotary,
    hyper_connection,
    ngram_hash,
    ngram_injection,
    selected_attention,
)
from torch import nn

from flare_components.modules import GatedDeltaNet, Injection


class Served(nn.Module):
    """The canonical decoder, of replacement modules."""

    def __init__(self, model):
        super().__init__()
        config, decoder = model.config, model.model
        self.streams, self.embed, self.head = config.hc_count, decoder.embed_tokens, model.lm_head
        self.rotary = group_rotary(model)
        ngrams = decoder.layers[1].ple
        self.table, self.hash = ngrams.ple_embedding.ngram_embedding, ngram_hash(ngrams, config)
        self.layers, linear = nn.ModuleList(), 0
        for layer in decoder.layers:
            if layer.layer_type == "linear_attention":
                mixer = delta_net(layer.linear_attn, config, linear)
                linear += 1
            else:
                mixer = selected_attention(layer.self_attn, config)
            parts = {
                "before": hyper_connection(layer.attn_hyper_connection, config),
                "mixer": mixer,
                "between": hyper_connection(layer.mlp_hyper_connection, config),
                "experts": expert_mixture(layer.mlp, config),
            }
            if layer.ple is not None:
                parts["ngrams"] = ngram_injection(layer.ple, config)
            self.layers.append(nn.ModuleDict(parts))
        self.last = hyper_connection(decoder.hyper_connection_mixer, config)

    def in_bf16(self):
        """A copy in BF16, as it is built in this type: rotary frequencies stay FP32."""
        other = copy.deepcopy(self).bfloat16()
        other.rotary.frequencies, other.rotary.dtype = self.rotary.frequencies, torch.bfloat16
        return other

    def hidden(self, batch, state):
        """Rows [N, H] for the head."""
        residual = self.embed(batch.ids.clamp_min(0)).repeat(1, self.streams)
        embeddings = self.table(self.hash(batch, state).clamp_min(0)).flatten(1)
        tables = self.rotary(batch.positions.expand(3, -1), batch, state)
        pending = None
        for layer in self.layers:
            if "ngrams" in layer:
                layer["ngrams"](residual, pending, embeddings, batch, state)
                pending = None
            x, measures = layer["before"](residual, pending)
            mixer = layer["mixer"]
            extra = () if isinstance(mixer, GatedDeltaNet) else (tables,)
            pending = Injection(mixer(x, *extra, batch, state), measures)
            x, measures = layer["between"](residual, pending)
            pending = Injection(layer["experts"](x, batch.lanes), measures)
        return self.last(residual, pending)[0]

    def logits(self, hidden):
        """[k, H] -> [k, V]."""
        return self.head(hidden)
