--- Ghost text for Neovim 0.11: what the adapter uses of 0.12's `vim.lsp.inline_completion`, drawn as 0.12 draws it.
local withdraw = require("midspan.withdraw")

local M = {}

local METHOD = "textDocument/inlineCompletion"
local TRIGGER_AUTOMATIC = 2
-- What 0.12 waits after a key; the server reckons with it.
local DEBOUNCE_MS = 200

local namespace = vim.api.nvim_create_namespace("midspan.ghost")

---@class midspan.OwnGhost what one buffer shows
---@field client vim.lsp.Client
---@field items lsp.InlineCompletionItem[]
---@field index integer of the drawn one
---@field timer? uv.uv_timer_t until the server is asked

---@type table<integer, midspan.OwnGhost> by buffer
local ghosts = {}

---@param bufnr integer
local function hide(bufnr)
  vim.api.nvim_buf_clear_namespace(bufnr, namespace, 0, -1)
end

---@param bufnr integer
---@param hint? string
local function draw(bufnr, hint)
  hide(bufnr)
  local ghost = ghosts[bufnr]
  local item = ghost.items[ghost.index]
  if not item then
    return
  end
  local first, last = item.range.start, item.range["end"]
  local line = vim.api.nvim_buf_get_lines(bufnr, first.line, first.line + 1, false)[1] or ""
  local chunks = vim.tbl_map(function(text)
    return { { text, "ComplHint" } }
  end, vim.split(item.insertText, "\n", { plain = true }))
  if hint then
    table.insert(chunks[#chunks], { hint, "ComplHintMore" })
  end
  local col = vim.str_byteindex(line, ghost.client.offset_encoding, first.character, false)
  vim.api.nvim_buf_set_extmark(bufnr, namespace, first.line, col, {
    virt_text = table.remove(chunks, 1),
    virt_lines = #chunks > 0 and chunks or nil,
    -- What accepting replaces is hidden behind the text that comes in its place.
    virt_text_pos = first.character == last.character and "inline" or "overlay",
    hl_mode = "combine",
  })
end

---@param bufnr integer
local function stop_timer(bufnr)
  local timer = ghosts[bufnr].timer
  ghosts[bufnr].timer = nil
  if timer and not timer:is_closing() then
    timer:stop()
    timer:close()
  end
end

---@param bufnr integer
local function ask(bufnr)
  local client = ghosts[bufnr].client
  local params = vim.lsp.util.make_position_params(0, client.offset_encoding)
  params.context = { triggerKind = TRIGGER_AUTOMATIC }
  client:request(METHOD, params, function(_, result)
    if ghosts[bufnr] and result then
      ghosts[bufnr].items, ghosts[bufnr].index = result.items, 1
      draw(bufnr)
    end
  end, bufnr)
end

---@param bufnr integer
local function ask_later(bufnr)
  stop_timer(bufnr)
  ghosts[bufnr].timer = vim.defer_fn(function()
    local is_typing = vim.startswith(vim.api.nvim_get_mode().mode, "i")
    if ghosts[bufnr] and is_typing and vim.api.nvim_get_current_buf() == bufnr then
      ask(bufnr)
    end
  end, DEBOUNCE_MS)
end

--- Withdraws what is asked and shown.
---@param bufnr integer
local function abort(bufnr)
  local ghost = ghosts[bufnr]
  withdraw(ghost.client, bufnr, METHOD)
  stop_timer(bufnr)
  hide(bufnr)
  ghost.items = {}
end

---@param bufnr integer
---@return integer group
local function group_of(bufnr)
  return vim.api.nvim_create_augroup("midspan.ghost." .. bufnr, {})
end

---@param bufnr integer
local function disable(bufnr)
  if ghosts[bufnr] then
    abort(bufnr)
    ghosts[bufnr] = nil
    vim.api.nvim_del_augroup_by_id(group_of(bufnr))
  end
end

--- Switches ghost text on or off in a buffer that the server is attached to.
---@param enable boolean
---@param filter { bufnr: integer }
function M.enable(enable, filter)
  local bufnr = filter.bufnr
  disable(bufnr)
  local client = vim.lsp.get_clients({ bufnr = bufnr, name = "midspan" })[1]
  if not enable or not client then
    return
  end
  vim.api.nvim_set_hl(0, "ComplHint", { default = true, link = "NonText" })
  vim.api.nvim_set_hl(0, "ComplHintMore", { default = true, link = "MoreMsg" })
  ghosts[bufnr] = { client = client, items = {}, index = 1 }
  local group = group_of(bufnr)
  local function on(events, callback)
    vim.api.nvim_create_autocmd(events, { group = group, buffer = bufnr, callback = callback })
  end
  on({ "InsertEnter", "CursorMovedI", "TextChangedP" }, function()
    ask_later(bufnr)
  end)
  on("InsertLeave", function()
    abort(bufnr)
  end)
  on("LspDetach", function(event)
    if event.data.client_id == client.id then
      disable(bufnr)
    end
  end)
end

--- Says whether ghost text is on in a buffer.
---@param filter { bufnr: integer, client_id: integer }
---@return boolean
function M.is_enabled(filter)
  local ghost = ghosts[filter.bufnr]
  return ghost ~= nil and ghost.client.id == filter.client_id
end

--- Takes the drawn item away and hands it over as soon as the text may be changed, so that this works in an <expr> map.
---@param opts { bufnr: integer, on_accept: fun(item: table): table? }
---@return boolean accepted false when nothing is drawn
function M.get(opts)
  local ghost = ghosts[opts.bufnr]
  if not ghost or not ghost.items[ghost.index] then
    return false
  end
  vim.schedule(function()
    local item = ghosts[opts.bufnr] == ghost and ghost.items[ghost.index]
    if item then
      abort(opts.bufnr)
      opts.on_accept({ insert_text = item.insertText, client_id = ghost.client.id })
    end
  end)
  return true
end

--- Draws the item so many further on.
---@param opts { bufnr: integer, count: integer }
function M.select(opts)
  local ghost = ghosts[opts.bufnr]
  local n = ghost and #ghost.items or 0
  if n > 0 then
    ghost.index = (ghost.index - 1 + opts.count) % n + 1
    draw(opts.bufnr, (" (%d/%d)"):format(ghost.index, n))
  end
end

return M
