--- `:Midspan watch`: a small window in which the canvas settles pass by pass.
local M = {}

local WIDTH, HEIGHT = 60, 16

local HINT = "Nothing settles yet: type, edit or fill holes, and the canvas is drawn here pass by pass."

local namespace = vim.api.nvim_create_namespace("midspan.watch")
local LINKS = {
  MidspanPin = "Comment",
  MidspanAccepted = "Normal",
  MidspanSure = "DiagnosticOk",
  MidspanDoubtful = "DiagnosticWarn",
  MidspanGuess = "DiagnosticError",
}
local GROUPS = {
  pin = "MidspanPin",
  blank = "MidspanPin",
  accepted = "MidspanAccepted",
  sure = "MidspanSure",
  open = "MidspanDoubtful",
  unsure = "MidspanGuess",
}

---@type integer? window
local window

---@return boolean
local function is_open()
  return window ~= nil and vim.api.nvim_win_is_valid(window)
end

local function close()
  if is_open() then
    vim.api.nvim_win_close(window, true)
  end
  window = nil
end

---@param client vim.lsp.Client
---@param enabled boolean
local function ask(client, enabled)
  client:request("midspan/watch", { enabled = enabled }, function(err)
    if err and is_open() then
      close()
      vim.notify("Midspan: the canvas cannot be watched: " .. err.message, vim.log.levels.ERROR)
    end
  end)
end

---@param enabled boolean
---@return integer n_asked
local function ask_all(enabled)
  local clients = vim.lsp.get_clients({ name = "midspan" })
  for _, client in ipairs(clients) do
    ask(client, enabled)
  end
  return #clients
end

local function open()
  for group, link in pairs(LINKS) do
    vim.api.nvim_set_hl(0, group, { default = true, link = link })
  end
  local bufnr = vim.api.nvim_create_buf(false, true)
  vim.bo[bufnr].bufhidden = "wipe"
  window = vim.api.nvim_open_win(bufnr, false, {
    relative = "editor",
    anchor = "NE",
    row = 1,
    col = vim.o.columns - 1,
    width = math.min(WIDTH, vim.o.columns - 4),
    height = math.min(HEIGHT, vim.o.lines - 4),
    style = "minimal",
    border = "rounded",
    focusable = false,
    title = " Midspan: the canvas ",
  })
  vim.wo[window].wrap, vim.wo[window].linebreak = true, true
  vim.api.nvim_create_autocmd("WinClosed", {
    desc = "Midspan: ask for no more drafts, however the window was closed",
    pattern = tostring(window),
    once = true,
    callback = function()
      window = nil
      ask_all(false)
    end,
  })
  local hint = ask_all(true) > 0 and HINT or "Midspan: " .. require("midspan.status").absence()
  vim.api.nvim_buf_set_lines(bufnr, 0, -1, false, { hint })
  vim.api.nvim_buf_set_extmark(bufnr, namespace, 0, 0, { end_col = #hint, hl_group = "MidspanPin" })
end

---@class midspan.Slot
---@field text string
---@field kind "pin"|"accepted"|"sure"|"open"|"unsure"|"blank"

---@class midspan.Draft
---@field step integer
---@field slots midspan.Slot[]

--- Draws a `midspan/draft` notification.
---@param draft midspan.Draft
function M.draw(draft)
  if not is_open() then
    return
  end
  local bufnr = vim.api.nvim_win_get_buf(window)
  local lines, spans = { "" }, {}
  for _, slot in ipairs(draft.slots) do
    local text = slot.kind == "blank" and "·" or slot.text
    for i, piece in ipairs(vim.split(text, "\n", { plain = true })) do
      if i > 1 then
        lines[#lines + 1] = ""
      end
      local col = #lines[#lines]
      lines[#lines] = lines[#lines] .. piece
      spans[#spans + 1] = { #lines - 1, col, col + #piece, GROUPS[slot.kind] }
    end
  end
  vim.api.nvim_buf_clear_namespace(bufnr, namespace, 0, -1)
  vim.api.nvim_buf_set_lines(bufnr, 0, -1, false, lines)
  for _, span in ipairs(spans) do
    local row, col, end_col, group = unpack(span)
    vim.api.nvim_buf_set_extmark(bufnr, namespace, row, col, { end_col = end_col, hl_group = group })
  end
  vim.api.nvim_win_set_config(window, { title = (" Midspan: pass %d "):format(draft.step) })
end

--- Asks a server that has just started for drafts, if they are watched.
---@param client vim.lsp.Client
function M.attach(client)
  if is_open() then
    ask(client, true)
  end
end

--- Opens the window and asks the servers for drafts, or closes it and asks for no more.
function M.toggle()
  if is_open() then
    close()
  else
    open()
  end
end

return M
