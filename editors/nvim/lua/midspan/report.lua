--- Tells the server what became of a suggestion; it counts on this machine, for `midspan/status`.
local M = {}

---@type table<integer, integer> the suggestion last reported as shown, by client id
local last_shown = {}

---@param suggestion midspan.Suggestion
---@return table item as the server sent it, as far as it is looked at
local function item_of(suggestion)
  return { insertText = suggestion.text, command = suggestion.command }
end

--- Reports a suggestion that is drawn, once for however long it stays.
---@param client vim.lsp.Client
---@param suggestion? midspan.Suggestion
function M.shown(client, suggestion)
  local id = suggestion and suggestion.command and suggestion.command.arguments[1]
  if id and last_shown[client.id] ~= id then
    last_shown[client.id] = id
    client:notify("textDocument/didShowCompletion", { item = item_of(suggestion) })
  end
end

--- Reports that a part of a suggestion was accepted, or all of it.
---@param client vim.lsp.Client
---@param suggestion midspan.Suggestion
---@param piece string the start of its text
---@param bufnr integer
function M.accepted(client, suggestion, piece, bufnr)
  if not suggestion.command then
    return
  end
  if piece == suggestion.text then
    client:exec_cmd(suggestion.command, { bufnr = bufnr })
  else
    local length = vim.str_utfindex(piece, "utf-16")
    client:notify("textDocument/didPartiallyAcceptCompletion", { item = item_of(suggestion), acceptedLength = length })
  end
end

return M
