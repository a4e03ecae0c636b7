--- Stands between what draws the ghost text and the server, where Neovim 0.12 needs help; 0.11 gets the same.
---
--- 0.12 shows whichever answer arrives last, keeps old ghost text when an answer is null or an error, never withdraws
--- a request while the user types on, and accepts a text at the place where it was asked for even when more was typed
--- since. The guard wraps the one client's `request`: it withdraws superseded requests, drops their answers, carries
--- each answer on to where the cursor stands when it arrives, and turns null and errors into an empty list.
local ghost = require("midspan.ghost")
local report = require("midspan.report")
local suggestion = require("midspan.suggestion")
local switch = require("midspan.switch")
local withdraw = require("midspan.withdraw")

local M = {}

local METHOD = "textDocument/inlineCompletion"
local TRIGGER_INVOKED = 1

---@class midspan.Shown what one buffer shows or waits for
---@field client vim.lsp.Client
---@field serial integer the newest request
---@field suggestions midspan.Suggestion[] the shown one first
---@field place? midspan.Place where they were last valid
---@field handler? lsp.Handler of what asked; it draws what it is given
---@field ctx? lsp.HandlerContext of the last answer
---@field dismissed? integer changedtick at which the user wanted nothing shown

---@type table<integer, midspan.Shown> by buffer
local shown = {}

---@param bufnr integer
---@return midspan.Place? place nil when the buffer is not the one being edited
local function place_in(bufnr)
  if vim.api.nvim_get_current_buf() ~= bufnr then
    return nil
  end
  local row, col = unpack(vim.api.nvim_win_get_cursor(0))
  return { row = row - 1, col = col, line = vim.api.nvim_get_current_line() }
end

--- Draws exactly `suggestions`, all of them valid at `place`.
---@param bufnr integer
---@param suggestions midspan.Suggestion[]
---@param place? midspan.Place
local function draw(bufnr, suggestions, place)
  local state = shown[bufnr]
  state.suggestions, state.place = suggestions, place
  local filter = { bufnr = bufnr, client_id = state.client.id }
  if not (state.handler and state.ctx and ghost.is_enabled(filter)) then
    return
  end
  local items = vim.tbl_map(function(each)
    return suggestion.to_item(each, place, state.client.offset_encoding)
  end, suggestions)
  -- The handler belongs to a completor that Neovim drops on detach or disable; then there is nothing left to draw on.
  local ok, message = pcall(state.handler, nil, { items = items }, state.ctx)
  if not ok then
    vim.lsp.log.warn("midspan", message)
  end
  report.shown(state.client, suggestions[1])
end

---@param suggestions midspan.Suggestion[]
---@param asked midspan.Place
---@param now midspan.Place
---@return midspan.Suggestion[]
local function carry_all(suggestions, asked, now)
  local carried = {}
  for _, each in ipairs(suggestions) do
    carried[#carried + 1] = suggestion.carry(each, asked, now)
  end
  return carried
end

--- Takes the suggestions of `bufnr` along with the cursor; those that no longer fit vanish.
---@param bufnr integer
local function follow(bufnr)
  local state = shown[bufnr]
  if not state or #state.suggestions == 0 then
    return
  end
  local now = place_in(bufnr)
  draw(bufnr, now and carry_all(state.suggestions, state.place, now) or {}, now)
end

---@param state midspan.Shown
---@param asked midspan.Place
---@param bufnr integer
---@return lsp.Handler
local function answer_for(state, asked, bufnr)
  state.serial = state.serial + 1
  local serial = state.serial
  return function(err, result, ctx)
    local now = place_in(bufnr)
    local is_wanted = shown[bufnr] == state
      and state.serial == serial
      and switch.is_on(bufnr)
      and state.dismissed ~= vim.b[bufnr].changedtick
    if not is_wanted or not now or not vim.startswith(vim.api.nvim_get_mode().mode, "i") then
      return
    end
    if err then
      vim.lsp.log.warn("midspan", err)
    end
    state.ctx = ctx
    local list = not err and type(result) == "table" and (result.items or result) or {}
    local suggestions, encoding = {}, state.client.offset_encoding
    for _, item in ipairs(list) do
      local place = suggestion.place_of(item, asked, now, encoding)
      local each = suggestion.from_item(item, place, encoding)
      suggestions[#suggestions + 1] = each and suggestion.carry(each, place, now)
    end
    draw(bufnr, suggestions, now)
  end
end

---@param client vim.lsp.Client
local function wrap(client)
  local send = client.request
  ---@param self vim.lsp.Client
  local function request(self, method, params, handler, bufnr)
    if method ~= METHOD and method ~= "textDocument/completion" then
      return send(self, method, params, handler, bufnr)
    end
    bufnr = (bufnr and bufnr ~= 0) and bufnr or vim.api.nvim_get_current_buf()
    if not switch.is_on(bufnr) then
      -- Answered here, so that switching off leaves the engine alone whoever asks.
      if method ~= METHOD and handler then
        local ctx = { method = method, client_id = client.id, bufnr = bufnr, params = params }
        vim.schedule(function()
          handler(nil, { isIncomplete = false, items = {} }, ctx)
        end)
      end
      return true, nil
    end
    local state, asked = shown[bufnr], place_in(bufnr)
    if method ~= METHOD or not state or not asked or not handler then
      return send(self, method, params, handler, bufnr)
    end
    if state.dismissed == vim.b[bufnr].changedtick and params.context.triggerKind ~= TRIGGER_INVOKED then
      return true, nil
    end
    state.dismissed = nil
    withdraw(client, bufnr, METHOD)
    state.handler = handler
    return send(self, method, params, answer_for(state, asked, bufnr), bufnr)
  end
  -- Plugins that serve older Neovims too leave the client out.
  client.request = function(first, ...)
    if first == client then
      return request(client, ...)
    end
    return request(client, first, ...)
  end
end

---@type table<integer, true> ids of the clients whose requests pass through here
local wrapped = {}

--- Says whether the user has chosen the completion menu (the setting `popup`) rather than ghost text.
---@param client vim.lsp.Client
---@return boolean
function M.is_popup(client)
  return client.server_capabilities.completionProvider ~= nil
end

--- Takes charge of a buffer that the server was attached to, and switches inline completion on.
---@param client vim.lsp.Client
---@param bufnr integer
function M.attach(client, bufnr)
  if not wrapped[client.id] then
    wrapped[client.id] = true
    wrap(client)
  end
  if M.is_popup(client) then
    return -- the same text is not offered twice
  end
  shown[bufnr] = { client = client, serial = 0, suggestions = {} }
  ghost.enable(true, { bufnr = bufnr })
  if vim.api.nvim_get_mode().mode:sub(1, 1) == "i" and vim.api.nvim_get_current_buf() == bufnr then
    -- What was typed before the server was there deserves an answer too; Neovim asks when the cursor moves. It creates
    -- what hears of that in a callback that it schedules after LspAttach, so ours has to be scheduled from a later one.
    vim.schedule(function()
      vim.schedule(function()
        vim.api.nvim_exec_autocmds("CursorMovedI", { buffer = bufnr })
      end)
    end)
  end

  local group = vim.api.nvim_create_augroup("midspan.buffer." .. bufnr, {})
  vim.api.nvim_create_autocmd({ "CursorMovedI", "TextChangedI", "TextChangedP" }, {
    group = group,
    buffer = bufnr,
    callback = function()
      follow(bufnr)
    end,
  })
  vim.api.nvim_create_autocmd("InsertLeave", {
    group = group,
    buffer = bufnr,
    callback = function()
      local state = shown[bufnr]
      state.serial, state.suggestions = state.serial + 1, {}
    end,
  })
  vim.api.nvim_create_autocmd("LspDetach", {
    group = group,
    buffer = bufnr,
    callback = function(event)
      if event.data.client_id == client.id then
        shown[bufnr] = nil
        vim.api.nvim_del_augroup_by_id(group)
      end
    end,
  })
end

--- Gives what can be accepted at the cursor of a buffer, the shown one first.
---@param bufnr integer
---@return midspan.Suggestion[]
---@return midspan.Place?
function M.at_cursor(bufnr)
  local state, now = shown[bufnr], place_in(bufnr)
  if not state or not now or #state.suggestions == 0 then
    return {}, now
  end
  return carry_all(state.suggestions, state.place, now), now
end

--- Shows `suggestions`, valid at the cursor, in place of what is shown.
---@param bufnr integer
---@param suggestions midspan.Suggestion[]
function M.show(bufnr, suggestions)
  if shown[bufnr] then
    draw(bufnr, suggestions, place_in(bufnr))
  end
end

--- Hides what is shown and asks for nothing until the text changes again.
---@param bufnr integer
function M.dismiss(bufnr)
  local state = shown[bufnr]
  if not state then
    return
  end
  withdraw(state.client, bufnr, METHOD)
  state.serial = state.serial + 1
  state.dismissed = vim.b[bufnr].changedtick
  draw(bufnr, {}, place_in(bufnr))
end

--- Shows the suggestion `step` further on; with a single one known, asks for all alternatives instead.
---@param bufnr integer
---@param step integer
function M.cycle(bufnr, step)
  local state = shown[bufnr]
  local n = state and #state.suggestions or 0
  if n > 1 then
    ghost.select({ bufnr = bufnr, count = step })
    local rotated = {}
    for i = 1, n do
      rotated[i] = state.suggestions[(i - 1 + step) % n + 1]
    end
    state.suggestions = rotated
  elseif state and state.handler then
    local params = vim.lsp.util.make_position_params(0, state.client.offset_encoding)
    params.context = { triggerKind = TRIGGER_INVOKED }
    state.client:request(METHOD, params, state.handler, bufnr)
  end
end

return M
