// The model's chat form around a prompt: a system message, the user's turn, and the start of the answer.
//
// Only the form that this model family uses is written here: turns between <|im_start|> and <|im_end|>, each starting with
// the role's name on a line. The file's own template is checked for it, and is where the default system message is from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gguf.hpp"
#include "tokenizer.hpp"

namespace tilewise::generate {

std::vector<std::int32_t> encode_chat(const Gguf& file, const Tokenizer& tokenizer, const std::string& prompt,
                                      const std::optional<std::string>& system);

}  // namespace tilewise::generate
