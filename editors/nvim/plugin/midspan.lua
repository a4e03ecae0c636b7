-- Defines names only; the modules are loaded when a server attaches or a key is pressed.

if vim.g.loaded_midspan then
  return
end
vim.g.loaded_midspan = true

---@param name string
---@param action string a function of the module `midspan`
---@param desc string
local function plug(name, action, desc)
  vim.keymap.set("i", ("<Plug>(midspan-%s)"):format(name), function()
    require("midspan")[action]()
  end, { desc = "Midspan: " .. desc })
end

plug("accept", "accept", "accept the suggestion")
plug("accept-word", "accept_word", "accept the next word of the suggestion")
plug("accept-line", "accept_line", "accept the next line of the suggestion")
plug("next", "next", "show the next suggestion")
plug("prev", "prev", "show the previous suggestion")
plug("dismiss", "dismiss", "dismiss the suggestion")
vim.keymap.set({ "n", "i" }, "<Plug>(midspan-toggle)", function()
  require("midspan").toggle()
end, { desc = "Midspan: switch suggestions on or off" })

vim.api.nvim_create_user_command("Midspan", function(command)
  require("midspan.command").run(command.fargs)
end, {
  nargs = "?",
  desc = "Midspan: status, toggle or restart",
  complete = function(lead)
    return require("midspan.command").complete(lead)
  end,
})

vim.api.nvim_create_autocmd("LspAttach", {
  group = vim.api.nvim_create_augroup("midspan", {}),
  desc = "Midspan: switch inline completion on in the buffer",
  callback = function(event)
    local client = vim.lsp.get_client_by_id(event.data.client_id)
    if client and client.name == "midspan" then
      require("midspan.guard").attach(client, event.buf)
    end
  end,
})
